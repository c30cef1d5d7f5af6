package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/millrace/millrace/store"
)

// queryMetrics returns what a page of a query took, in the protocol's form, which clients split at its
// semicolons. It has the figures alone that are measured, whose names they take in any number: the time
// of owners is that of all together, as clients add up the times of ranges. The ratio is that of rows to items read, which is what an index
// spares: the SDK for Java, which asks for the figures with every query, fails where it is missing.
func queryMetrics(page *store.QueryPage) string {
	m, size := &page.Metrics, 0
	for _, row := range page.Rows {
		size += len(row)
	}
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	ratio := 1.0
	if m.Items > 0 {
		ratio = min(float64(len(page.Rows))/float64(m.Items), 1) // a JOIN makes more rows than there are items
	}
	return fmt.Sprintf("totalExecutionTimeInMs=%.2f;queryCompileTimeInMs=%.2f;retrievedDocumentCount=%d;retrievedDocumentSize=%d;outputDocumentCount=%d;outputDocumentSize=%d;indexUtilizationRatio=%.2f",
		ms(m.Time+m.Compile), ms(m.Compile), m.Items, m.Bytes, len(page.Rows), size, ratio)
}

// indexUse is one index in the metrics.
type indexUse struct {
	Filter string `json:"FilterExpression"`
	Spec   string `json:"IndexSpec"`
	Score  string `json:"IndexImpactScore"`
}

// indexMetrics returns which index a query used, in the protocol's form: JSON in base64. keys are the paths of the
// partition key, if it led to the items. The first version of the form has other lists than the second one. What the
// service tells of the conditions that an index served is not known here.
func indexMetrics(m *store.QueryMetrics, keys []string, first bool) string {
	single, none := []indexUse{}, []indexUse{}
	for _, path := range keys {
		single = append(single, indexUse{Spec: path + "/?", Score: "High"})
	}
	if m.Index != "" {
		single = append(single, indexUse{Spec: pathOf(m.Index) + "/?", Score: "High"})
	}
	form := map[string]any{
		"UtilizedIndexes":  map[string]any{"SingleIndexes": single, "CompositeIndexes": none},
		"PotentialIndexes": map[string]any{"SingleIndexes": none, "CompositeIndexes": none},
	}
	if first {
		form = map[string]any{
			"UtilizedSingleIndexes": single, "UtilizedCompositeIndexes": none, "PotentialSingleIndexes": none, "PotentialCompositeIndexes": none,
		}
	}
	form["Access"] = m.Access
	data, err := json.Marshal(form)
	if err != nil {
		panic("gateway: metrics cannot be marshalled: " + err.Error())
	}
	return base64.StdEncoding.EncodeToString(data)
}

// keysUsed returns the paths of the partition key, as metrics have them, if the request names one.
func (c *collection) keysUsed(sc *scope) (paths []string) {
	if sc.key.IsZero() {
		return nil
	}
	for _, path := range c.info.Spec.PartitionKey {
		paths = append(paths, pathOf(path))
	}
	return paths
}
