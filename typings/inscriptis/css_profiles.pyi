CSS_PROFILES: dict[str, dict[str, object]]
