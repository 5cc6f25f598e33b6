"""Names that a checkpoint, a job or an operator may bring, and that a page must only ever show."""

from typing import Final

LONGEST: Final = "W" * 256
"""As long as a name may be, and nowhere to break."""

RUN_NAMES: Final = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "' onmouseover='alert(3)",
    "javascript:alert(4)",
    "{{ 7*7 }}${7*7}<%= 7*7 %>",
    "run/with/../slashes?and=query#and%2Ffragment",
    "txt.\u202egnp.\u2066exe",
    "a\u200bb\u00adc\ufeffd",
    "训练-運行-🚀-ñ-e\u0301\u0301\u0301",
    "'; DROP TABLE runs; --",
    " leading and  double  spaces ",
    "&lt;b&gt;&amp;&#x3c;b&#x3e;",
    LONGEST,
)
"""Each is a lawful name of a run."""

FILES: Final = (
    "<script>alert(5)</script>.distcp",
    '"><svg onload=alert(6)>.distcp',
    "a\u202ecptsid.exe",
    "sub/" + "d" * 240 + ".distcp",
)

FQNS: Final = (
    "<img src=x onerror=alert(7)>.weight",
    "model.'\"`.weight",
    "model." + "very_long_" * 60 + "weight",
    "model.\u2067rtl\u2069.weight",
)

TEXT: Final = "</td></table><script>alert(8)</script> javascript:alert(9) \u202e and " + "m" * 300
"""What a reason, a detail of a restart or a message may hold."""

FORMULA: Final = '=HYPERLINK("http://evil.example","click")'
"""A name that a spreadsheet would run."""
