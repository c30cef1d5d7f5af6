package dataset

// HotTagProducts returns how many products have tag 0.
func (s *Set) HotTagProducts() int { return (s.cfg.Products - hotAt + hotEvery - 1) / hotEvery }
