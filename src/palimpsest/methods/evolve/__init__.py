"""Private evolution: texts by authors that never see a private row, chosen round by round by noisy votes."""
