package aggregate

import "github.com/millrace/millrace/processors"

// Check returns everything that is wrong with the declaration in cfg.
func Check(cfg *Config, sourceKey, targetKey []string) processors.Problems {
	_, problems := declare(cfg, sourceKey, targetKey)
	return problems
}

// Local says whether a source item and its targets are always in one logical
// partition.
func Local(a *Aggregate) bool { return a.local }
