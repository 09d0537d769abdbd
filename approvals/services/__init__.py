"""The only code that writes approvals' tables, by use case.

Lock order: Root → Goal → Consent → Connection → Hold → Approval → Job → Effect → head of the log.
No network, file or key access inside.
"""
