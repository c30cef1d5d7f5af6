package store

import "github.com/millrace/millrace/feed"

func (w *wireWriter) fold(f *FoldMany) {
	w.producer(f.Producer)
	w.uint(f.Epoch)
	w.position(f.After)
	w.position(f.UpTo)
	w.bool(f.Ask)
	w.bytes(f.Delta)
	w.bool(f.Mend)
	w.uint(f.Content)
}

func (d *wireReader) fold() *FoldMany {
	return &FoldMany{
		Producer: d.producer(), Epoch: d.uint(), After: d.position(), UpTo: d.position(), Ask: d.bool(), Delta: d.bytes(),
		Mend: d.bool(), Content: d.uint(),
	}
}

func (w *wireWriter) foldResult(r *FoldResult) {
	w.uint(uint64(r.LSN))
	w.bool(r.Applied)
	w.position(r.Position)
	w.refusals(r.Refused)
}

func (d *wireReader) foldResult() *FoldResult {
	return &FoldResult{LSN: feed.LSN(d.uint()), Applied: d.bool(), Position: d.position(), Refused: d.refusals()}
}

func (w *wireWriter) readGroups(r *ReadGroups) {
	w.str(r.Pipeline)
	w.uint(uint64(r.Generation))
	w.bool(r.Groups != nil)
	w.uint(uint64(len(r.Groups)))
	for _, g := range r.Groups {
		w.str(g)
	}
	w.str(r.After)
	w.uint(uint64(r.Max))
}

func (d *wireReader) readGroups() *ReadGroups {
	r := &ReadGroups{Pipeline: d.str(), Generation: uint32(d.uint())}
	if d.bool() {
		r.Groups = []string{}
	}
	for range d.count() {
		r.Groups = append(r.Groups, d.str())
	}
	r.After, r.Max = d.str(), d.int()
	return r
}

func (w *wireWriter) groups(r *GroupsResult) {
	w.uint(uint64(r.LSN))
	w.bytes(r.Content)
	w.uint(r.Digest)
	w.str(r.Last)
	w.uint(uint64(len(r.Positions)))
	for _, p := range r.Positions {
		w.str(p.Source)
		w.position(p.Position)
	}
}

func (d *wireReader) groups() *GroupsResult {
	r := &GroupsResult{LSN: feed.LSN(d.uint()), Content: d.bytes(), Digest: d.uint(), Last: d.str()}
	for range d.count() {
		r.Positions = append(r.Positions, ProducerPosition{Source: d.str(), Position: d.position()})
	}
	return r
}

func (w *wireWriter) putRows(r *PutRows) {
	w.producer(r.Producer)
	w.uint(r.Epoch)
	w.position(r.After)
	w.position(r.UpTo)
	w.bool(r.Ask)
	w.uint(uint64(len(r.Rows)))
	for i := range r.Rows {
		w.ref(r.Rows[i].Ref)
		w.bytes(r.Rows[i].Body)
		w.str(r.Rows[i].Source)
	}
}

func (d *wireReader) putRows() *PutRows {
	r := &PutRows{Producer: d.producer(), Epoch: d.uint(), After: d.position(), UpTo: d.position(), Ask: d.bool()}
	for range d.count() {
		r.Rows = append(r.Rows, Row{Ref: d.ref(), Body: d.bytes(), Source: d.str()})
	}
	return r
}

func (w *wireWriter) putRowsResult(r *PutRowsResult) {
	w.uint(uint64(r.LSN))
	w.bool(r.Applied)
	w.position(r.Position)
	w.refusals(r.Refused)
}

func (d *wireReader) putRowsResult() *PutRowsResult {
	return &PutRowsResult{LSN: feed.LSN(d.uint()), Applied: d.bool(), Position: d.position(), Refused: d.refusals()}
}

func (w *wireWriter) readClaims(r *ReadClaims) {
	w.str(r.Pipeline)
	w.uint(uint64(r.Generation))
	w.bytes(r.After)
	w.uint(uint64(r.Max))
}

func (d *wireReader) readClaims() *ReadClaims {
	return &ReadClaims{Pipeline: d.str(), Generation: uint32(d.uint()), After: d.bytes(), Max: d.int()}
}

func (w *wireWriter) claims(r *ClaimsResult) {
	w.uint(uint64(r.LSN))
	w.uint(uint64(len(r.Claims)))
	for i := range r.Claims {
		w.str(r.Claims[i].Source)
		w.bytes(r.Claims[i].Body)
	}
	w.bytes(r.Last)
}

func (d *wireReader) claims() *ClaimsResult {
	r := &ClaimsResult{LSN: feed.LSN(d.uint())}
	for range d.count() {
		r.Claims = append(r.Claims, Claim{Source: d.str(), Body: d.bytes()})
	}
	r.Last = d.bytes()
	return r
}

func (w *wireWriter) refusals(all []Refusal) {
	w.uint(uint64(len(all)))
	for _, f := range all {
		w.ref(f.Ref)
		w.uint(uint64(f.Status))
		w.str(f.Reason)
	}
}

func (d *wireReader) refusals() (all []Refusal) {
	for range d.count() {
		all = append(all, Refusal{Ref: d.ref(), Status: Status(d.uint()), Reason: d.str()})
	}
	return all
}
