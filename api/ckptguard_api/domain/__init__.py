"""Pure rules of the service: values in, decisions out; no SQL, no HTTP."""
