package sim

// shrink takes from a plan that fails whatever it still fails without. It is not ok if the
// plan does not fail again.
func shrink(p plan, fails func(plan) (result, bool)) (small plan, r result, ok bool) {
	if r, ok = fails(p); !ok {
		return p, r, false
	}
	for smaller := true; smaller; {
		smaller = false
		for _, q := range p.smaller() {
			if again, failed := fails(q); failed {
				p, r, smaller = q, again, true
				break
			}
		}
	}
	return p, r, true
}
