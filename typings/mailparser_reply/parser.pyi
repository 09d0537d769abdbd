import re

class EmailMessage:
    HEADER_REGEX: re.Pattern[str]
    def __init__(self, text: str, languages: list[str] = ...) -> None: ...
