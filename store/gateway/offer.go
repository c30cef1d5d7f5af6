package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"

	"github.com/millrace/millrace/store"
)

// offer is the throughput that a client asked for of a container, in request units per second.
// Millrace takes what the machine gives, so it has no effect; it is kept and shown because
// clients set it, and read what they have set. One of both fields is set.
type offer struct {
	Throughput   int `json:"throughput,omitempty"`
	AutoscaleMax int `json:"autoscaleMax,omitempty"`
}

// The bounds of an offer, which are the service's: 400 in steps of 100 or, with autoscale, 1000 in
// steps of 1000, and a million at most.
const (
	throughputMin, throughputStep = 400, 100
	autoscaleMin, autoscaleStep   = 1000, 1000
	throughputMax                 = 1_000_000
)

// Headers that ask for throughput when a container is made.
const (
	headerThroughput = "x-ms-offer-throughput"
	headerAutopilot  = "x-ms-cosmos-offer-autopilot-settings"
)

// offerJSON is an offer as the protocol has it. Its ID and RID are those of its container: there is one offer of each.
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
	Max int `json:"maxThroughput"`
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
		o.AutoscaleMax = asked.Max
	}
	return o.check()
}

// offerBody returns the offer of a container. One of which nobody asked for any has the least, as
// in the service.
func offerBody(info *store.ContainerInfo) (*offerJSON, error) {
	kept, err := keptOf(info)
	if err != nil {
		return nil, err
	}
	o := offer{Throughput: throughputMin}
	if kept.Offer != nil {
		o = *kept.Offer
	}
	own := info.RID()
	text := own.String()
	body := &offerJSON{
		Resource: own.Self(), ResourceID: text, Type: "Invalid", Version: "V2",
		Content: offerContent{Throughput: o.Throughput}, ID: text, RID: text, Self: "offers/" + text + "/",
		ETag: `"` + revisionTag(info.Revision) + `"`, Modified: unixSeconds(info.Created),
	}
	if o.AutoscaleMax != 0 {
		// What the service gives at rest is a tenth of the most.
		body.Content.Throughput, body.Content.Autopilot = o.AutoscaleMax/10, &autopilotOffer{Max: o.AutoscaleMax}
	}
	return body, nil
}

// offerBodies are the bodies of all offers.
func (s *Server) offerBodies(ctx context.Context) ([]json.RawMessage, error) {
	infos, err := s.client.Catalog().List(ctx)
	if err != nil {
		return nil, err
	}
	infos = slices.DeleteFunc(infos, func(i store.ContainerInfo) bool { return i.State != store.ContainerReady })
	bodies := make([]json.RawMessage, len(infos))
	for i := range infos {
		body, err := offerBody(&infos[i])
		if err != nil {
			return nil, err
		}
		if bodies[i], err = json.Marshal(body); err != nil {
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

// offered returns the container whose offer a request names.
func (s *Server) offered(x *exchange) (*store.ContainerInfo, error) {
	infos, err := s.client.Catalog().List(x.ctx)
	if err != nil {
		return nil, err
	}
	for i := range infos {
		if infos[i].State == store.ContainerReady && infos[i].RID().String() == x.target.id {
			return &infos[i], nil
		}
	}
	return nil, refuse(http.StatusNotFound, "there is no offer %s", clip(x.target.id))
}

func answerOffer(x *exchange, info *store.ContainerInfo) error {
	body, err := offerBody(info)
	if err != nil {
		return err
	}
	x.etag(revisionTag(info.Revision))
	return x.answerJSON(http.StatusOK, chargeResource, body)
}

func (s *Server) readOffer(x *exchange) error {
	info, err := s.offered(x)
	if err != nil {
		return err
	}
	return answerOffer(x, info)
}

// replaceOffer keeps what a client asks for. A body with autoscale is taken for a container
// without and the other way round: what is kept has no effect.
func (s *Server) replaceOffer(x *exchange) error {
	info, err := s.offered(x)
	if err != nil {
		return err
	}
	if info.Database == store.SystemDatabase {
		return readOnlySystem(x.op.name)
	}
	var asked offerJSON
	if err := x.decode(&asked); err != nil {
		return err
	}
	if asked.ResourceID != "" && asked.ResourceID != x.target.id {
		return refuse(http.StatusBadRequest, "the offer is that of %s, the body names %s", x.target.id, clip(asked.ResourceID))
	}
	if match := x.header("If-Match"); match != "" && match != "*" && parseMatchingText(match) != revisionTag(info.Revision) {
		return refuse(http.StatusPreconditionFailed, "container %s has changed; read its offer again", info.Name)
	}
	o := offer{Throughput: asked.Content.Throughput}
	if auto := asked.Content.Autopilot; auto != nil {
		o = offer{AutoscaleMax: auto.Max}
	}
	kept, err := keptOf(info)
	if err != nil {
		return err
	}
	if kept.Offer, err = o.check(); err != nil {
		return err
	}
	policies, err := kept.encode()
	if err != nil {
		return err
	}
	changed, err := s.client.Catalog().SetPolicies(x.ctx, info, policies)
	if err != nil {
		return err
	}
	return answerOffer(x, &changed)
}
