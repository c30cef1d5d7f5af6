package webstore

import (
	"math"
	"math/rand/v2"
	"sort"
)

// table draws numbers with given weights.
type table struct {
	values []int
	upTo   []float64 // cumulative weights
}

func newTable(values []int, weights []float64) *table {
	t := &table{values: values, upTo: make([]float64, len(weights))}
	sum := 0.0
	for i, w := range weights {
		sum += w
		t.upTo[i] = sum
	}
	return t
}

// histogram is a table of pairs: value, count.
func histogram(pairs ...int) *table {
	var values []int
	var weights []float64
	for i := 0; i < len(pairs); i += 2 {
		values, weights = append(values, pairs[i]), append(weights, float64(pairs[i+1]))
	}
	return newTable(values, weights)
}

// rankTable draws 1 to n by the law (rank + shift)^-power.
func rankTable(n int, shift, power float64) *table {
	values, weights := make([]int, n), make([]float64, n)
	for i := range n {
		values[i], weights[i] = i+1, math.Pow(float64(i+1)+shift, -power)
	}
	return newTable(values, weights)
}

// negativeBinomial draws 1 + NB(r, p), at most most, which stands for all above:
// the probability of k failures is C(k+r-1, k) p^r (1-p)^k.
func negativeBinomial(r, p float64, most int) *table {
	values, weights := make([]int, most), make([]float64, most)
	w, rest := 1.0, math.Pow(p, -r)
	for k := range most {
		values[k], weights[k] = k+1, w
		rest -= w
		w *= (float64(k) + r) / float64(k+1) * (1 - p)
	}
	weights[most-1] += max(rest, 0)
	return newTable(values, weights)
}

// geometric draws 1, 2, ... with probability p of stopping at each, at most most.
func geometric(p float64, most int) *table { return negativeBinomial(1, p, most) }

// draw returns a value.
func (t *table) draw(r *rand.Rand) int {
	x := r.Float64() * t.upTo[len(t.upTo)-1]
	return t.values[min(sort.SearchFloat64s(t.upTo, x), len(t.values)-1)]
}

// The distributions that were measured; no simple law fits those given as
// histograms.
var (
	personOrders = histogram(1, 11619, 2, 5454, 3, 1166, 4, 150, 5, 51, 6, 5, 7, 4, 16, 14, 17, 7, 25, 1, 27, 11, 28, 2)
	shopOrders   = histogram(1, 30, 2, 20, 3, 38, 4, 235, 5, 20, 6, 21, 7, 34, 8, 145, 9, 10, 10, 8, 11, 10, 12, 64)
	personLines  = histogram(1, 9668, 2, 8163, 3, 5870, 4, 3138, 5, 696, 6, 109, 7, 12, 8, 3)
	shopLines    = negativeBinomial(0.616, 0.0394, 72)
	shopQuantity = geometric(0.284, 44)
	halfYears    = histogram(0, 184, 1, 1423, 2, 1679, 3, 2107, 4, 2685, 5, 11454, 6, 11923)
)

// assortment is what one kind of customer buys: products in order of their rank.
type assortment struct {
	products []int32
	ranks    *table
}

// assortment picks a share of the products at random and ranks them at random.
func (s *Store) assortment(kind uint64, share, shift, power float64) assortment {
	r := s.random(kind, 0)
	all := make([]int32, s.cfg.Products)
	for i := range all {
		all[i] = int32(i + 1)
	}
	r.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	n := max(int(math.Round(share*float64(len(all)))), 1)
	return assortment{products: all[:n:n], ranks: rankTable(n, shift, power)}
}

// draw returns n different products, fewer if there are not so many.
func (a *assortment) draw(r *rand.Rand, n int) []int {
	n = min(n, len(a.products))
	drawn := make([]int, 0, n)
	seen := make(map[int]bool, n)
	for tries := 0; len(drawn) < n; tries++ {
		rank := a.ranks.draw(r)
		if tries > 50*n {
			// What is left is rare: take the first that is missing.
			for rank = 1; seen[rank]; rank++ {
			}
		}
		if !seen[rank] {
			seen[rank] = true
			drawn = append(drawn, int(a.products[rank-1]))
		}
	}
	return drawn
}
