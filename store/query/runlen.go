package query

// Len returns how many rows, or groups, the run has at hand. One whose rows are kept
// as they come can end when it has as many as the query still needs.
func (r *Run) Len() int { return len(r.rows) }

// ReadsItems tells whether the query has a FROM. One without gives its row whatever
// items there are, and needs but one partition.
func (q *Query) ReadsItems() bool { return len(q.text.from) > 0 }
