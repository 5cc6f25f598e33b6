"""Where bytes come from: one small protocol over local folders, object stores and memory."""
