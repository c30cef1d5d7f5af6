package gateway

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/millrace/millrace/feed/document"
	"github.com/millrace/millrace/store"
)

// parsePatch reads a patch: an array of operations, or an object with the operations and a
// condition. The request's Content-Type is ignored, because clients differ in it.
func parsePatch(body []byte) (ops []document.Op, condition string, err error) {
	var patch struct {
		Condition  string   `json:"condition"`
		Operations patchOps `json:"operations"`
	}
	body = bytes.TrimSpace(body)
	if len(body) > 0 && body[0] == '[' {
		err = json.Unmarshal(body, &patch.Operations)
	} else {
		err = json.Unmarshal(body, &patch)
	}
	if err != nil {
		return nil, "", refuse(http.StatusBadRequest, "the body is not a patch, {\"operations\": [...]}: %v", err)
	}
	if n := patch.Operations.n; n < 1 || n > store.PatchOpsMax {
		return nil, "", refuse(http.StatusBadRequest, "the patch has %d operations; 1 to %d are allowed", n, store.PatchOpsMax)
	}
	return patch.Operations.list, patch.Condition, nil
}

// patchOps are the operations of a patch as they are sent. There is no list if n is too many.
type patchOps struct {
	list []document.Op
	n    int
}

func (p *patchOps) UnmarshalJSON(data []byte) (err error) {
	p.list, p.n, err = document.DecodeList[document.Op](data, store.PatchOpsMax)
	return err
}
