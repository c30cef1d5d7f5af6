package owner

import "testing"

func TestReadCondition(t *testing.T) {
	item := []byte(`{"id":"1","stock":3,"from":{"where":2},"somewhere":{"stock":0}}`)
	for _, c := range []struct {
		text string
		want bool
	}{
		{`from c where c.stock > 0`, true},
		{`from c where c.stock > 3`, false},
		{`from c where(c.stock > 0)`, true},
		{`FROM c WHERE(c.stock > 3)`, false},
		{`from somewhere where somewhere.stock > 0`, true},
		{`from somewhere where(somewhere.stock) > 3`, false},
		{`from fromwhere where "where" != "from c where" and fromwhere.stock = 3`, true},
		{"\n from\tc\u00a0\n where\nc.stock\n>\n0 ", true},
		{`from $größe1 where $größe1.stock = 3`, true},
		{`from c where-c.stock < 0`, true},
		{`c.stock > 0`, true},
		{`stock > 3`, false},
		{`from.where = 2`, true},
		{`somewhere.stock > 0`, false},
	} {
		e, err := readCondition(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		if got := e.True(item); got != c.want {
			t.Errorf("%s is %t", c.text, got)
		}
	}
	for _, text := range []string{``, `from c`, `from c where`, `from c wherever > 1`, `from 1c where true`, `from c, d where true`, `from c where (`} {
		if _, err := readCondition(text); err == nil {
			t.Errorf("%q is a condition", text)
		}
	}
}
