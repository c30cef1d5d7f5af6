package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/cmd/millrace/internal/inspect"
	"github.com/millrace/millrace/feed"
	"github.com/millrace/millrace/integration/storetest"
	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// silentOwner has a partition and answers nothing.
type silentOwner struct{ t *testing.T }

func (o silentOwner) Handle(ctx context.Context, r *store.Request) *store.Response {
	if r.Status == nil {
		o.t.Errorf("an owner that does not say how it is was asked for more: %+v", r)
	}
	<-ctx.Done()
	return &store.Response{Err: &store.Error{Status: store.StatusUnknown, Message: "no answer"}}
}

// talkingOwner says that all is well, and has one item.
type talkingOwner struct{}

func (talkingOwner) Handle(_ context.Context, r *store.Request) *store.Response {
	if r.Status != nil {
		return &store.Response{Status: &store.PartitionStatus{Owner: "talking"}}
	}
	return &store.Response{Scan: &store.ScanResult{Items: []store.Item{{ID: "of-" + r.Partition.String(), Body: []byte(`{}`)}}}}
}

// owned is a console of a store with one container, of whose partitions each has the owner that is named for it.
func owned(t *testing.T, owners ...store.Handler) *Console {
	t.Helper()
	s := storetest.System(t)
	records, err := registry.Open(t.Context(), s.JS, s.Client, registry.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client := s.Owned(t, owners...)
	return New(&Config{
		Inspect: inspect.Config{JetStream: s.JS, Client: client, Registry: records, AnswerTimeout: 50 * time.Millisecond}, Logger: storetest.Quiet(),
	})
}

// get returns the answer to somebody who may read.
func (c *Console) get(path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.AddCookie(&http.Cookie{Name: cookieName(r), Value: c.sessions.begin(session{role: RoleRead})})
	w := httptest.NewRecorder()
	c.ServeHTTP(w, r)
	return w
}

// The page of a container shows the items of the partitions that answer, and names the others, however many they are.
func TestContainer_OwnersAreSilent(t *testing.T) {
	t.Parallel()
	const silent, talking = 20, 2
	owners := slices.Repeat([]store.Handler{silentOwner{t}}, silent)
	answer := owned(t, append(owners, slices.Repeat([]store.Handler{talkingOwner{}}, talking)...)...).get("/containers/default/things")
	page := answer.Body.String()
	if answer.Code != http.StatusOK {
		t.Fatalf("%d\n%s", answer.Code, page)
	}
	for text, want := range map[string]int{"are missing here": silent, `">of-`: talking, "<td>talking</td>": talking, "status on ": 2 * silent} {
		if got := strings.Count(page, text); got != want {
			t.Errorf("%q is there %d times, want %d\n%s", text, got, want, page)
		}
	}
}

// A list of items waits for partitions that do not read, but not for all of them: it leads on behind those that it has
// waited for.
func TestListItems_PartitionsDoNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const partitions = 5
		p := containerPage{Container: &inspect.Container{Partitions: slices.Repeat([]inspect.Partition{{Status: &store.PartitionStatus{}}}, partitions)}}
		asked := []feed.Partition{}
		scan := func(ctx context.Context, at feed.Partition, _ store.Scan) (*store.ScanResult, error) {
			asked = append(asked, at)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		all := make([]feed.Partition, partitions)
		for i := range all {
			all[i] = feed.Partition{Container: "c7k2x4ab", Number: uint32(i)}
		}
		if err := p.listItems(t.Context(), scan, all, "1."); err != nil {
			t.Fatal(err)
		}
		// Two have had scanTimeout, and the third what was left.
		if len(p.Missing) != 2 || p.Missing[1].Partition != all[2].String() || p.Next != "3." || len(asked) != 3 {
			t.Errorf("missing %+v, the next page begins at %q, asked were %v", p.Missing, p.Next, asked)
		}
	})
}
