"""mail.gmail: one exact reply through Gmail, and the proof that it was sent (ADR-016).

Pure modules judge what was observed and make or read exact bytes: `scopes`, `identity`, `snapshot`,
`exact_mime`, `mime_check`, `request`, `readback`. They contact nothing, read no clock and know no
table. Each refusal is a `ProfileRefused` with a word of `reasons`.
"""
