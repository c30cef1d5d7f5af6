package pgsink

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// call is one statement with its parameters.
type call struct {
	sql string
	// args appends the parameters; nil for none.
	args func(a *arguments)
}

// result is what a statement did.
type result struct {
	rows     [][][]byte
	affected int64
}

// togetherBytesMax is how many bytes of parameters are sent before the results are read: the
// driver holds them until then. Most batches have a hundredth.
const togetherBytesMax = 4 << 20

// runCalls sends calls together and returns their results, whose values are binary. The
// error is that of the first that failed; those behind it were not run.
func runCalls(ctx context.Context, k *conn, a *arguments, calls ...call) ([]result, error) {
	results := make([]result, 0, len(calls))
	for len(results) < len(calls) {
		some, err := runSome(ctx, k, a, calls[len(results):])
		if err != nil {
			return nil, err
		}
		results = append(results, some...)
	}
	return results, nil
}

// runSome sends the first of the calls, at least one, and returns their results.
func runSome(ctx context.Context, k *conn, a *arguments, calls []call) ([]result, error) {
	p := k.StartPipeline(ctx)
	binary := []int16{1}
	n, bytes := 0, 0
	for n < len(calls) && bytes < togetherBytesMax {
		a.reset()
		if calls[n].args != nil {
			calls[n].args(a)
		}
		p.SendQueryParams(calls[n].sql, a.values(), a.oids, binary, binary)
		bytes += len(a.buf)
		n++
	}
	results, err := readResults(p, n)
	if closeErr := p.Close(); err == nil && closeErr != nil {
		err = closeErr
	}
	return results, err
}

// readResults sends what is in the pipeline and reads n results.
func readResults(p *pgconn.Pipeline, n int) ([]result, error) {
	if err := p.Sync(); err != nil {
		return nil, err
	}
	results := make([]result, n)
	for i := range results {
		got, err := p.GetResults()
		if err != nil {
			return nil, err
		}
		reader, ok := got.(*pgconn.ResultReader)
		if !ok {
			return nil, fmt.Errorf("the driver answered with %T", got)
		}
		r := reader.Read()
		if r.Err != nil {
			return nil, r.Err
		}
		results[i] = result{r.Rows, r.CommandTag.RowsAffected()}
	}
	return results, nil
}

// runOne runs one call.
func runOne(ctx context.Context, k *conn, a *arguments, c call) (result, error) {
	results, err := runCalls(ctx, k, a, c)
	if err != nil {
		return result{}, err
	}
	return results[0], nil
}

// simpleQuery runs statements without parameters, by PostgreSQL's simple query protocol,
// and returns the rows of the last one as text.
func simpleQuery(ctx context.Context, k *conn, sql string) ([][][]byte, error) {
	results, err := simpleQueryAll(ctx, k, sql)
	if err != nil || len(results) == 0 {
		return nil, err
	}
	return results[len(results)-1].Rows, nil
}

// simpleQueryAll returns the results of all of them.
func simpleQueryAll(ctx context.Context, k *conn, sql string) ([]*pgconn.Result, error) {
	return k.Exec(ctx, sql).ReadAll()
}

// rollback ends a transaction that failed, if the connection is still there. It runs before
// release, which would otherwise close a connection that has a transaction open.
func rollback(ctx context.Context, k *conn) {
	if k.IsClosed() || k.TxStatus() == 'I' {
		return
	}
	_, _ = simpleQueryAll(ctx, k, "rollback") // if this fails release closes the connection
}
