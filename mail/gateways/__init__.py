"""What lies outside the process: IMAP, SMTP, the raw store; memory siblings beside them."""
