package spec_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/pipelines/spec"
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
		"a count and a name on the same items": `
metadata: {name: product-counts}
spec:
  source: {container: product}
  aggregate: {into: productMeta, where: type = "category", match: {id: categoryId}, set: {products: {count: true}, dearest: {max: price}}}
`,
		"pipelines that compose: product to order line, order line to category, category to product": `
metadata: {name: line-categories}
spec:
  source: {container: product}
  cascade: {into: customer, where: type = "salesOrder", each: details, match: {productId: id, productCategory: categoryId}, set: {categoryId: categoryId, categoryName: categoryName}}
---
metadata: {name: category-sales}
spec:
  source: {container: customer, where: type = "salesOrder"}
  aggregate:
    into: productMeta
    each: details
    where: type = "category"
    match: {id: categoryId}
    set: {sales: {sum: price * quantity}}
---
metadata: {name: customer-totals}
spec:
  source: {container: customer, where: type = "salesOrder"}
  aggregate:
    into: customer
    where: type = "customer"
    match: {customerId: customerId}
    set: {salesOrderCount: {count: true}, lines: {count: true, each: details}}
    consistency: transactional
---
metadata: {name: top-customers}
spec:
  source: {container: customer, where: type = "customer"}
  aggregate:
    into: productMeta
    where: type = "list" AND id = "top-customers"
    create: true
    set: {customers: {latest: 10, by: salesOrderCount, fields: [id, salesOrderCount]}}
---
metadata: {name: analytics}
spec:
  source: {container: customer}
  project:
    sink: {parquet: {path: ./analytics}}
    tables: {customers: {key: [id], columns: {id: id, orders: salesOrderCount}}}
---
metadata: {name: more-analytics}
spec:
  source: {container: product}
  project:
    sink: {parquet: {path: ./analytics-of-products}}
    tables: {products: {key: [id], columns: {id: id}}}
`,
		"transactional: the partition key is matched, or fixed alike in both wheres": `
metadata: {name: brands-of-makers}
spec:
  source: {container: productMeta, where: type = "meta" AND kind = "brand"}
  aggregate: {into: productMeta, where: type = "meta" AND kind = "maker", match: {id: makerId}, set: {brands: {count: true}}, consistency: transactional}
`,
		"a count of rows in the items that they are made of, which the rows do not depend on": `
metadata: {name: flat-products}
spec:
  source: {container: customer, where: type = "salesOrder"}
  project: {sink: {container: {}}, tables: {product: {each: details, key: [categoryId, id], columns: {categoryId: categoryId, id: sku, orders: item.lineCount}}}}
---
metadata: {name: category-names}
spec:
  source: {container: product}
  aggregate: {into: customer, where: type = "customer", match: {customerId: categoryId}, set: {rows: {count: true}}}
`,
		"rows with a constant, beside what another pipeline sets in others": `
metadata: {name: flat-products}
spec:
  source: {container: customer, where: type = "salesOrder"}
  project: {sink: {container: {}}, tables: {product: {each: details, key: [categoryId, id], columns: {categoryId: categoryId, id: sku, kind: '"row"'}}}}
---
metadata: {name: category-names}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade: {into: product, where: kind = "product", match: {categoryId: id}, set: {categoryName: name}}
`,
		"a directory below the workers' root and one that may lie elsewhere": `
metadata: {name: customers}
spec:
  source: {container: customer}
  project: {sink: {parquet: {path: .}}, tables: {customers: {key: [id], columns: {id: id}}}}
---
metadata: {name: products}
spec:
  source: {container: product}
  project: {sink: {parquet: {path: /srv/x}}, tables: {products: {key: [id], columns: {id: id}}}}
`,
		"several fields, nested": `
metadata: {name: brands}
spec:
  source: {container: productMeta, where: type = "brand"}
  cascade: {into: product, match: {brand.id: id}, set: {brand.name: name, brand.site: links.site}}
`,
	} {
		t.Run(name, func(t *testing.T) {
			r, err := spec.Decode("f.yaml", []byte(pipelineDocuments(text)))
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
	r, err := spec.Decode("f.yaml", []byte(pipelineDocuments(`
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
