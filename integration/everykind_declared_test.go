package integration_test

import (
	"os"
	"strings"
	"testing"
)

func writeText(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// everyContainer are the containers of a small WebStore.
const everyContainer = `
apiVersion: millrace/v1
kind: Container
metadata: {name: productMeta}
spec: {partitionKey: [/type]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: product}
spec: {partitionKey: [/categoryId], partitions: 2}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: customer}
spec: {partitionKey: [/customerId], partitions: 2, ttl: on}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: sku}
spec: {partitionKey: [/id]}
---
apiVersion: millrace/v1
kind: Container
metadata: {name: region}
spec: {partitionKey: [/id]}
`

// everyPipeline are pipelines of all kinds: several stand on what others write.
// FILES is the directory of the tables.
const everyPipeline = `
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-names}
spec:
  source: {container: productMeta, where: type = "category"}
  cascade: {into: product, match: {categoryId: id}, set: {categoryName: name}, onSourceDelete: keep}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: tag-names}
spec:
  source: {container: productMeta, where: type = "tag"}
  cascade: {into: product, each: tags, match: {id: id}, set: {name: name}, onSourceDelete: clear}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: skus}
spec:
  source: {container: product}
  project:
    sink: {container: {}}
    onExpire: delete
    tables:
      sku:
        where: IS_STRING(sku)
        key: [id]
        columns: {id: sku, productId: id, categoryId: categoryId}
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: line-categories}
spec:
  source: {container: sku}
  cascade:
    into: customer
    where: type = "salesOrder"
    each: details
    match: {sku: id}
    set: {categoryId: categoryId}
    onSourceDelete: keep
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: customer-totals}
spec:
  source: {container: customer, where: type = "salesOrder"}
  aggregate:
    into: customer
    match: {customerId: customerId}
    where: type = "customer"
    set:
      salesOrderCount: {count: true}
      lifetimeValue: {sum: price * quantity, each: details}
      lastOrderDate: {max: orderDate}
      recentOrders: {latest: 3, by: orderDate, fields: [id, orderDate]}
    consistency: transactional
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: category-sales}
spec:
  source: {container: customer, where: type = "salesOrder"}
  aggregate:
    into: productMeta
    each: details
    match: {id: categoryId}
    where: type = "category"
    set:
      linesSold: {count: true}
      unitsSold: {sum: quantity}
      sales: {sum: price * quantity}
    consistency: eventual
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: region-totals}
spec:
  source: {container: customer, where: type = "customer"}
  aggregate:
    into: region
    match: {id: region}
    create: true
    set:
      customers: {count: true}
      orders: {sum: salesOrderCount}
    consistency: eventual
---
apiVersion: millrace/v1
kind: Pipeline
metadata: {name: analytics}
spec:
  source: {container: customer}
  project:
    sink: {parquet: {path: FILES, commitInterval: 100ms}}
    onExpire: delete
    tables:
      customers:
        where: type = "customer"
        key: [id]
        columns:
          id: id
          name: name
          orders: {expr: salesOrderCount, type: int64}
      orders:
        where: type = "salesOrder"
        key: [id]
        columns: {id: id, customerId: customerId, orderDate: orderDate}
      lines:
        where: type = "salesOrder"
        each: details
        key: [orderId, line]
        columns:
          orderId: item.id
          line: {expr: index, type: int64}
          sku: sku
          categoryId: categoryId
          price: {expr: price, type: "decimal(12,2)"}
          quantity: {expr: quantity, type: int64}
`

// everyPipelineIn names the directory of the tables.
func everyPipelineIn(dir string) string { return strings.Replace(everyPipeline, "FILES", dir, 1) }
