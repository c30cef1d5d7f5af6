package document

import (
	"encoding/json"

	"github.com/millrace/millrace/feed/document/scan"
)

// DecodeList decodes a JSON array with encoding/json, unless it has more than most elements:
// then the list is nil and n, how many there are, tells it. Three bytes of text, as in
// [{},{},{}], can stand for an element that takes a hundred bytes of memory, so a list from
// outside is counted before memory is made for it. The error is that of encoding/json; text that
// is no JSON may be counted in place of it.
func DecodeList[T any](data []byte, most int) (list []T, n int, err error) {
	for i := scan.FirstElement(data, scan.Space(data, 0)); i >= 0; i = scan.Next(data, i) {
		n++
		if i = scan.Value(data, i); i < 0 {
			break
		}
	}
	if n > most {
		return nil, n, nil
	}
	err = json.Unmarshal(data, &list)
	return list, len(list), err
}
