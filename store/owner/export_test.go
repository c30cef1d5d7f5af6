package owner

// LoadReserve makes c ask f how much of the disk the load of a snapshot leaves free.
func LoadReserve(c *Config, f func() int64) { c.loadReserve = f }
