package snapshot

// Several parts are then few bytes.
func init() { partTarget = 32 << 10 }
