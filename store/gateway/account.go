package gateway

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// location is a region of the account: a name and the endpoint that serves it.
type location struct {
	Name     string `json:"name"`
	Endpoint string `json:"databaseAccountEndpoint"`
}

// account is the body of the account. A client sends all further requests to the endpoint of
// one of its locations.
type account struct {
	Self                         string         `json:"_self"`
	ID                           string         `json:"id"`
	RID                          string         `json:"_rid"`
	Media                        string         `json:"media"`
	Addresses                    string         `json:"addresses"`
	Databases                    string         `json:"_dbs"`
	WritableLocations            []location     `json:"writableLocations"`
	ReadableLocations            []location     `json:"readableLocations"`
	EnableMultipleWriteLocations bool           `json:"enableMultipleWriteLocations"`
	UserReplicationPolicy        map[string]any `json:"userReplicationPolicy"`
	UserConsistencyPolicy        map[string]any `json:"userConsistencyPolicy"`
	SystemReplicationPolicy      map[string]any `json:"systemReplicationPolicy"`
	ReadPolicy                   map[string]any `json:"readPolicy"`
	QueryEngineConfiguration     string         `json:"queryEngineConfiguration"`
}

// accountID must not be localhost: a client would then forget the locations.
const accountID = "millrace"

// engineLimits are the limits that clients read which plan queries by themselves. The numbers
// are the service's.
const engineLimits = `{"maxSqlQueryInputLength":262144,"maxJoinsPerSqlQuery":10,"maxLogicalAndPerSqlQuery":2000,` +
	`"maxLogicalOrPerSqlQuery":2000,"maxUdfRefPerSqlQuery":10,"maxInExpressionItemsCount":16000,"queryMaxInMemorySortDocumentCount":500,` +
	`"maxQueryRequestTimeoutFraction":0.9,"sqlAllowNonFiniteNumbers":false,"sqlAllowAggregateFunctions":true,"sqlAllowSubQuery":true,` +
	`"sqlAllowScalarSubQuery":true,"allowNewKeywords":true,"sqlAllowLike":true,"sqlAllowGroupByClause":true,` +
	`"maxSpatialQueryCells":12,"spatialMaxGeometryPointCount":256,"sqlDisableOptimizationFlags":0,"enableSpatialIndexing":true}`

func (s *Server) readAccount(x *exchange) error {
	// One location for reading and for writing: all nodes serve the same containers.
	here := []location{{Name: s.cfg.Region, Endpoint: s.endpoint(x.r)}}
	one := map[string]any{"asyncReplication": false, "minReplicaSetSize": 1, "maxReplicasetSize": 4}
	return x.answerJSON(http.StatusOK, chargeResource, account{
		ID: accountID, RID: accountID + ".documents", Media: "//media/", Addresses: "//addresses/", Databases: "//dbs/",
		WritableLocations: here, ReadableLocations: here,
		UserReplicationPolicy: one, SystemReplicationPolicy: one,
		UserConsistencyPolicy:    map[string]any{"defaultConsistencyLevel": s.cfg.Consistency},
		ReadPolicy:               map[string]any{"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
		QueryEngineConfiguration: engineLimits,
	})
}

// endpoint returns the URL by which the client reached the server. A fixed URL would send
// clients behind a port map or a proxy to an address that they cannot reach.
func (s *Server) endpoint(r *http.Request) string {
	if s.cfg.public != nil {
		return s.cfg.public.Scheme + "://" + s.cfg.public.Host + "/"
	}
	u := url.URL{Scheme: "http", Host: r.Host, Path: "/"}
	if r.TLS != nil {
		u.Scheme = "https"
	}
	// Anybody can send these headers, and they decide where a client sends its signed
	// requests. So they count only from a configured proxy.
	if s.trusted(r.RemoteAddr) {
		if host := firstOf(r.Header.Get("X-Forwarded-Host")); host != "" {
			u.Host = host
		}
		if proto := strings.ToLower(firstOf(r.Header.Get("X-Forwarded-Proto"))); proto == "http" || proto == "https" {
			u.Scheme = proto
		}
	}
	return u.String()
}

// firstOf returns the first of values separated by commas, the one nearest to the
// client.
func firstOf(header string) string {
	first, _, _ := strings.Cut(header, ",")
	return strings.TrimSpace(first)
}

// trusted reports whether a request came from a configured proxy.
func (s *Server) trusted(remote string) bool {
	if len(s.cfg.proxies) == 0 {
		return false
	}
	addr, err := netip.ParseAddrPort(remote)
	if err != nil {
		return false
	}
	for _, p := range s.cfg.proxies {
		if p.Contains(addr.Addr().Unmap()) {
			return true
		}
	}
	return false
}
