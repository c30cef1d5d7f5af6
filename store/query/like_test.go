package query

import (
	"math/rand/v2"
	"testing"
)

// Patterns of text and % alone are matched as all others are.
func TestLike_Texts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	text := func(letters string, most int) []byte {
		var out []byte
		runes := []rune(letters)
		for range r.IntN(most) {
			out = append(out, string(runes[r.IntN(len(runes))])...)
		}
		return out
	}
	matched := 0
	for range 5000 {
		p, ok := newPattern(stringValue(text("ab%é", 7)), stringValue(nil))
		if !ok || p.texts == nil {
			t.Fatal("no pattern of texts")
		}
		s := text("abé", 9)
		want := match(s, p.pieces, nil)
		if want {
			matched++
		}
		if got := matchTexts(s, p.texts); got != want {
			t.Fatalf("%q matches %q: %v, want %v", s, p.texts, got, want)
		}
	}
	if matched < 250 {
		t.Errorf("%d of 5000 match", matched)
	}
}
