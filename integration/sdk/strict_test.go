package sdk_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/data/azcosmos"
)

// With gateway.strict the SDKs for JavaScript and Python have queries over several partition keys by their plans, and
// azcosmos, which runs no plan, is refused what Cosmos DB refuses it.
func TestSDKs_Strict(t *testing.T) {
	s := start(t, false, "MILLRACE_GATEWAY_STRICT=true")
	db := s.database(t)
	c := container(t, db, azcosmos.ContainerProperties{}, "/pk")
	for i := range 12 {
		item := object{"id": fmt.Sprint(i), "pk": fmt.Sprint(i), "n": i}
		_, err := c.CreateItem(t.Context(), pk(item["pk"]), item.json(), nil)
		must(t, err)
	}
	if got := query(t, c, azcosmos.NewPartitionKey(), "SELECT * FROM c WHERE c.n < 6", 0); len(got) != 6 {
		t.Errorf("a filter gives %d items of 6", len(got))
	}
	if got := query(t, c, pk("3"), "SELECT VALUE SUM(c.n) FROM c", 0); len(got) != 1 || string(got[0]) != "3" {
		t.Errorf("a sum over one key gives %s", got)
	}
	_, err := c.NewQueryItemsPager("SELECT * FROM c ORDER BY c.n", azcosmos.NewPartitionKey(), nil).NextPage(t.Context())
	if status(err) != http.StatusBadRequest {
		t.Errorf("azcosmos is answered ORDER BY over all keys with %v", err)
	}
	env := []string{"MILLRACE_DATABASE=" + db.ID()}
	node(t, s, env, "strict.js")
	python(t, s, env, "strict.py")
}
