package pipelines

import (
	"maps"
	"slices"
	"strings"

	"github.com/millrace/millrace/processors/cascade"
)

// cascadeConfig returns what a spec says in the words of the processor. The
// containers and the pipeline's identity are left out.
func cascadeConfig(s *PipelineSpec) cascade.Config {
	c := s.Cascade
	return cascade.Config{
		SourceWhere: s.Source.Where, TargetWhere: c.Where, Each: c.Each,
		Match: pairsOf(c.Match), Set: pairsOf(c.Set), OnSourceDelete: cascade.OnSourceDelete(c.OnSourceDelete),
	}
}

// pairsOf orders pairs by the field of the target.
func pairsOf(fields map[string]string) []cascade.Pair {
	pairs := make([]cascade.Pair, 0, len(fields))
	for _, target := range slices.Sorted(maps.Keys(fields)) {
		pairs = append(pairs, cascade.Pair{Target: target, Source: fields[target]})
	}
	return pairs
}

// rules applies the rules of the pipeline's kind to p, and returns whether it
// keeps them.
func (c *checker) rules(p *knownPipeline, source, target *knownContainer) bool {
	cfg := cascadeConfig(&p.spec)
	problems := cascade.Check(&cfg, source.spec.PartitionKey, target.spec.PartitionKey)
	for _, problem := range problems {
		field := "spec." + problem.Field
		at := p.places.at(field)
		if strings.HasPrefix(problem.Field, "cascade.set.") || strings.HasPrefix(problem.Field, "cascade.match.") {
			at = p.places.key(field)
		}
		c.findings.add(at, "%s %s", field, problem.Message)
	}
	return len(problems) == 0
}
