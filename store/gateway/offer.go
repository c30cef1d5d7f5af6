package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/store"
)

// offer is the throughput that a client asked for of a container or database, in request units per second.
// Millrace takes what the machine gives, so it has no effect; it is kept and shown because
// clients set it, and read what they have set. One of both fields is set.
type offer struct {
	Throughput   int `json:"throughput,omitempty"`
	AutoscaleMax int `json:"autoscaleMax,omitempty"`
	// Increment is how much AutoscaleMax is to grow by itself, in per cent; with autoscale alone.
	Increment int `json:"increment,omitempty"`
}

// databasePolicies are what the catalog keeps of a database for the gateway.
type databasePolicies struct {
	Offer *offer `json:"offer,omitempty"`
}

func (p databasePolicies) encode() (json.RawMessage, error) {
	if p.Offer == nil {
		return nil, nil
	}
	data, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("database policies: %w", err)
	}
	return data, nil
}

// The bounds of an offer, which are the service's: 400 in steps of 100 or, with autoscale, 1000 in
// steps of 1000, and a million at most.
const (
	throughputMin, throughputStep = 400, 100
	autoscaleMin, autoscaleStep   = 1000, 1000
	throughputMax                 = 1_000_000
)

// Headers that ask for throughput when a container or database is made.
const (
	headerThroughput = "x-ms-offer-throughput"
	headerAutopilot  = "x-ms-cosmos-offer-autopilot-settings"
)

// offerJSON is an offer as the protocol has it. Its ID and RID are those of its container or database: there is one offer of each.
type offerJSON struct {
	Resource   string       `json:"resource"`
	ResourceID string       `json:"offerResourceId"`
	Type       string       `json:"offerType"`
	Version    string       `json:"offerVersion"`
	Content    offerContent `json:"content"`
	ID         string       `json:"id"`
	RID        string       `json:"_rid"`
	Self       string       `json:"_self"`
	ETag       string       `json:"_etag"`
	Modified   int64        `json:"_ts"`
}

type offerContent struct {
	Throughput int             `json:"offerThroughput"`
	PerMinute  bool            `json:"offerIsRUPerMinuteThroughputEnabled"`
	Autopilot  *autopilotOffer `json:"offerAutopilotSettings,omitempty"`
}

type autopilotOffer struct {
	Max     int            `json:"maxThroughput"`
	Upgrade *upgradePolicy `json:"autoUpgradePolicy,omitempty"`
}

type upgradePolicy struct {
	Throughput struct {
		Increment int `json:"incrementPercent"`
	} `json:"throughputPolicy"`
}

// offer returns what is asked for.
func (a *autopilotOffer) offer() offer {
	o := offer{AutoscaleMax: a.Max}
	if a.Upgrade != nil {
		o.Increment = a.Upgrade.Throughput.Increment
	}
	return o
}

// check refuses an offer that the service would not take.
func (o offer) check() (*offer, error) {
	n, least, step, what := o.Throughput, throughputMin, throughputStep, "throughput"
	if o.AutoscaleMax != 0 {
		if o.Throughput != 0 {
			return nil, refuse(http.StatusBadRequest, "throughput and autoscale are asked for at once; one of them is expected")
		}
		n, least, step, what = o.AutoscaleMax, autoscaleMin, autoscaleStep, "maxThroughput of autoscale"
	}
	if n < least || n > throughputMax || n%step != 0 {
		return nil, refuse(http.StatusBadRequest, "%s is %d; %d to %d in steps of %d are allowed", what, n, least, throughputMax, step)
	}
	if o.Increment < 0 {
		return nil, refuse(http.StatusBadRequest, "incrementPercent is %d; a number from 0 is expected", o.Increment)
	}
	return &o, nil
}

// askedOffer returns what the headers of a request that makes a container ask for, nil if nothing.
func askedOffer(x *exchange) (*offer, error) {
	var o offer
	manual, autopilot := x.header(headerThroughput), x.header(headerAutopilot)
	if manual == "" && autopilot == "" {
		return nil, nil
	}
	if manual != "" {
		n, err := strconv.Atoi(manual)
		if err != nil || n == 0 {
			return nil, refuse(http.StatusBadRequest, "%s is %q; a number is expected", headerThroughput, clip(manual))
		}
		o.Throughput = n
	}
	if autopilot != "" {
		var asked autopilotOffer
		if err := json.Unmarshal([]byte(autopilot), &asked); err != nil || asked.Max == 0 {
			return nil, refuse(http.StatusBadRequest, `%s is %q; {"maxThroughput": 1000} is expected`, headerAutopilot, clip(autopilot))
		}
		o.AutoscaleMax, o.Increment = asked.Max, asked.offer().Increment
	}
	return o.check()
}

// offered is a container or database that has an offer.
type offered struct {
	offer     offer
	id, self  string // of its resource
	created   time.Time
	revision  uint64
	database  *store.DatabaseInfo  // nil if it is a container's
	container *store.ContainerInfo // nil if it is a database's
}

// body returns the offer in the protocol's form.
func (o *offered) body() *offerJSON {
	body := &offerJSON{
		Resource: o.self, ResourceID: o.id, Type: "Invalid", Version: "V2",
		Content: offerContent{Throughput: o.offer.Throughput}, ID: o.id, RID: o.id, Self: "offers/" + o.id + "/",
		ETag: `"` + revisionTag(o.revision) + `"`, Modified: unixSeconds(o.created),
	}
	if most := o.offer.AutoscaleMax; most != 0 {
		// What the service gives at rest is a tenth of the most.
		body.Content.Throughput, body.Content.Autopilot = most/10, &autopilotOffer{Max: most}
		if o.offer.Increment > 0 {
			body.Content.Autopilot.Upgrade = &upgradePolicy{}
			body.Content.Autopilot.Upgrade.Throughput.Increment = o.offer.Increment
		}
	}
	return body
}

// offers returns all offers. As in the service a database has one that was asked for alone, and so has a
// container whose database has one; any other container has at least the least.
func (s *Server) offers(ctx context.Context) ([]offered, error) {
	databases, err := s.client.Catalog().Databases(ctx)
	if err != nil {
		return nil, err
	}
	infos, err := s.client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	var all []offered
	shared := map[string]bool{}
	for i := range databases {
		d := &databases[i]
		var kept databasePolicies
		if len(d.Policies) > 0 {
			if err := json.Unmarshal(d.Policies, &kept); err != nil {
				return nil, fmt.Errorf("policies of database %s: %w", d.Name, err)
			}
		}
		if kept.Offer != nil {
			shared[d.Name] = true
			all = append(all, offered{offer: *kept.Offer, id: d.RID().String(), self: d.RID().Self(), created: d.Created, revision: d.Revision, database: d})
		}
	}
	for i := range infos {
		info := &infos[i]
		if info.State != store.ContainerReady {
			continue
		}
		kept, err := keptOf(info)
		if err != nil {
			return nil, err
		}
		o := offered{offer: offer{Throughput: throughputMin}, id: info.RID().String(), self: info.RID().Self(), created: info.Created, revision: info.Revision, container: info}
		if kept.Offer != nil {
			o.offer = *kept.Offer
		} else if shared[info.Database] {
			continue
		}
		all = append(all, o)
	}
	return all, nil
}

// offerBodies are the bodies of all offers.
func (s *Server) offerBodies(ctx context.Context) ([]json.RawMessage, error) {
	all, err := s.offers(ctx)
	if err != nil {
		return nil, err
	}
	bodies := make([]json.RawMessage, len(all))
	for i := range all {
		if bodies[i], err = json.Marshal(all[i].body()); err != nil {
			return nil, err
		}
	}
	return bodies, nil
}

func (s *Server) listOffers(x *exchange) error {
	bodies, err := s.offerBodies(x.ctx)
	if err != nil {
		return err
	}
	return answerList(x, "", "Offers", bodies)
}

func (s *Server) queryOffers(x *exchange) error {
	bodies, err := s.offerBodies(x.ctx)
	if err != nil {
		return err
	}
	return s.queryResources(x, "", "Offers", bodies)
}

// offered returns the offer that a request names.
func (s *Server) offered(x *exchange) (*offered, error) {
	all, err := s.offers(x.ctx)
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(all, func(o offered) bool { return o.id == x.target.id }); i >= 0 {
		return &all[i], nil
	}
	return nil, refuse(http.StatusNotFound, "there is no offer %s", clip(x.target.id))
}

func answerOffer(x *exchange, o *offered) error {
	x.etag(revisionTag(o.revision))
	least := throughputMin
	if o.offer.AutoscaleMax != 0 {
		least = autoscaleMin
	}
	x.w.Header().Set(headerLeast, strconv.Itoa(least))
	x.w.Header().Set(headerReplacing, "false")
	return x.answerJSON(http.StatusOK, chargeResource, o.body())
}

func (s *Server) readOffer(x *exchange) error {
	o, err := s.offered(x)
	if err != nil {
		return err
	}
	return answerOffer(x, o)
}

// replaceOffer keeps what a client asks for. A body with autoscale is taken for a container
// without and the other way round: what is kept has no effect.
func (s *Server) replaceOffer(x *exchange) error {
	is, err := s.offered(x)
	if err != nil {
		return err
	}
	if is.container != nil && is.container.Database == store.SystemDatabase {
		return readOnlySystem(x.op.name)
	}
	var asked offerJSON
	if err := x.decode(&asked); err != nil {
		return err
	}
	if asked.ResourceID != "" && asked.ResourceID != x.target.id {
		return refuse(http.StatusBadRequest, "the offer is that of %s, the body names %s", x.target.id, clip(asked.ResourceID))
	}
	if match := x.header("If-Match"); match != "" && match != "*" && parseMatchingText(match) != revisionTag(is.revision) {
		return offerChanged()
	}
	o := offer{Throughput: asked.Content.Throughput}
	if auto := asked.Content.Autopilot; auto != nil {
		o = auto.offer()
	}
	taken, err := o.check()
	if err != nil {
		return err
	}
	is.offer = *taken
	is.revision, err = s.keepOffer(x.ctx, is)
	if match := x.header("If-Match"); match != "" && match != "*" && errors.Is(err, store.ErrConflict) {
		return offerChanged() // by another, behind the comparison above
	}
	if err != nil {
		return err
	}
	return answerOffer(x, is)
}

func offerChanged() *failure {
	return refuse(http.StatusPreconditionFailed, "what the offer is of has changed; read the offer again")
}

// keepOffer records an offer, and returns the revision of what it is of.
func (s *Server) keepOffer(ctx context.Context, o *offered) (revision uint64, err error) {
	if o.database != nil {
		policies, err := databasePolicies{Offer: &o.offer}.encode()
		if err != nil {
			return 0, err
		}
		changed, err := s.client.Catalog().SetDatabasePolicies(ctx, o.database, policies)
		return changed.Revision, err
	}
	kept, err := keptOf(o.container)
	if err != nil {
		return 0, err
	}
	kept.Offer = &o.offer
	policies, err := kept.encode()
	if err != nil {
		return 0, err
	}
	changed, err := s.client.Catalog().SetPolicies(ctx, o.container, policies)
	return changed.Revision, err
}
