"""What an operator sees in a browser: server-rendered pages under `/ui`.

`door` lets a browser in, `visit` is what a page knows of its visitor, `rendering` makes HTML, `wording` makes
numbers and times readable, `static_files` serves scripts and styles; every other module is one page.
"""
