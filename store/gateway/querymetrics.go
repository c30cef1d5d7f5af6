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
	Spec  string `json:"IndexSpec"`
	Score string `json:"IndexImpactScore"`
}

// indexMetrics returns which index a query used, in the protocol's form: JSON in base64.
func indexMetrics(m *store.QueryMetrics) string {
	single := []indexUse{}
	if m.Index != "" {
		single = append(single, indexUse{pathOf(m.Index) + "/?", "High"})
	}
	data, err := json.Marshal(map[string]any{
		"UtilizedIndexes":  map[string]any{"SingleIndexes": single, "CompositeIndexes": []indexUse{}},
		"PotentialIndexes": map[string]any{"SingleIndexes": []indexUse{}, "CompositeIndexes": []indexUse{}},
		"Access":           m.Access,
	})
	if err != nil {
		panic("gateway: metrics cannot be marshalled: " + err.Error())
	}
	return base64.StdEncoding.EncodeToString(data)
}
