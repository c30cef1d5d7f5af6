package remote

import "time"

// GiveUpAfter is Config.Timeout for the requests of c that follow.
func (c *Container) GiveUpAfter(d time.Duration) { c.client.timeout = d }
