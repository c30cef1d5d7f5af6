// Package gateway serves the Azure Cosmos DB for NoSQL REST protocol in gateway
// mode, so that the official SDKs are clients of Millrace.
//
// # Model
//
// A request passes these steps; each may end it with an error in the protocol's
// form, {"code", "message"}, and then nothing was changed:
//
//	target     the path to a noun and its names                      route.go
//	authorize  the signature over verb, noun and link, or a resource
//	           token; read or write, of all or of a part of a container auth.go, grant.go
//	route      method and headers to what is done with the noun      route.go
//	body       read whole, within its limit and time                 exchange.go
//	slot       at most RequestsMax are carried out at once           slots.go
//	noun       account, databases, containers, ranges, items, …      a file each
//	answer     JSON with activity id, charge, session token, etag    exchange.go
//
// No byte of a body is read before its sender is known, and no slot is held while a body is
// read: slow clients cost a connection and nothing else, and unknown ones not even that, because
// their connections make room for others.
//
// # Promises
//
//   - Containers that clients make and containers of YAML are the same.
//   - The gateway acknowledges a write only if store.Client does.
//   - Every answer has a body that the SDKs understand, also a refusal by the router.
//   - An application's key opens the items of the container that it names and nothing else, a resource token what
//     its permission names, and for a second after that has gone at the most. An operation that does not say what it
//     touches is closed to both. What is outside is refused before anybody is asked whether it is there.
//   - Errors become status, substatus and code in one table, errors.go.
//
// A Server keeps no state of its own beyond caches of the catalog and of permissions: several of them
// may serve the same containers. It is safe for concurrent use.
//
// It is no API: the command millrace is made of it, and it changes without notice.
package gateway
