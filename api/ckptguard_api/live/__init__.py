"""Events as they happen: one reader of the database for all streams of a process."""
