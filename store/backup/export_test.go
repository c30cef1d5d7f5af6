package backup

// Several segments are then few bytes.
func init() { segmentTarget = 4 << 10 }
