package pipelines_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines"
)

// TestCheckAccepts shows what looks like a conflict or a cycle and is none.
func TestCheckAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"a chain: what one sets another copies": `
metadata: {name: brands}
spec:
  source: {container: productMeta, where: type = "brand"}
  cascade: {into: productMeta, where: type = "model", match: {brandId: id}, set: {brandName: name}}
---
metadata: {name: models}
spec:
  source: {container: productMeta, where: type = "model"}
  cascade: {into: product, match: {modelId: id}, set: {brandName: brandName}}
`,
		"one field, kept apart by a where that no item satisfies in both": `
metadata: {name: children}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade: {into: productMeta, where: type = "shelf", match: {categoryId: id}, set: {name: name}}
`,
		"one field of different items, set by two pipelines": `
metadata: {name: bikes}
spec:
  source: {container: productMeta, where: type = "brand"}
  cascade: {into: product, where: kind = "bike", match: {brandId: id}, set: {brandName: name}}
---
metadata: {name: parts}
spec:
  source: {container: productMeta, where: type = "maker"}
  cascade: {into: product, where: kind = "part", match: {brandId: id}, set: {brandName: name}}
`,
		"a pipeline that exists, declared otherwise": `
metadata: {name: category-names}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade: {into: product, match: {categoryId: id}, set: {categoryName: title}}
`,
		"several fields, nested": `
metadata: {name: brands}
spec:
  source: {container: productMeta, where: type = "brand"}
  cascade: {into: product, match: {brand.id: id}, set: {brand.name: name, brand.site: links.site}}
`,
	} {
		t.Run(name, func(t *testing.T) {
			r, err := pipelines.Decode("f.yaml", []byte(pipelineDocuments(text)))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Check(shop(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCheckRefusesWhatAWhereCannotKeepApart sets the field by which a where tells
// items apart, so that one item may be both in turn.
func TestCheckRefusesWhatAWhereCannotKeepApart(t *testing.T) {
	r, err := pipelines.Decode("f.yaml", []byte(pipelineDocuments(`
metadata: {name: bikes}
spec:
  source: {container: productMeta, where: type = "brand"}
  cascade: {into: product, where: kind = "bike", match: {brandId: id}, set: {brandName: name}}
---
metadata: {name: parts}
spec:
  source: {container: productMeta, where: type = "maker"}
  cascade: {into: product, where: kind = "part", match: {brandId: id}, set: {brandName: name}}
---
metadata: {name: kinds}
spec:
  source: {container: productMeta, where: type = "model"}
  cascade: {into: product, match: {modelId: id}, set: {kind: kind}}
`)))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Check(shop(t)); err == nil || !strings.Contains(err.Error(), "is set by pipeline default/bikes too") {
		t.Errorf("%v", err)
	}
}

// pipelineDocuments completes documents with what all pipelines begin with.
func pipelineDocuments(text string) string {
	docs := strings.Split(text, "---\n")
	for i := range docs {
		docs[i] = "apiVersion: millrace/v1\nkind: Pipeline\n" + strings.TrimPrefix(docs[i], "\n")
	}
	return strings.Join(docs, "---\n")
}
