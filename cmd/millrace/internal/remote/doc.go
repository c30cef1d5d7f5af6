// Package remote reads and writes items over the Azure Cosmos DB REST protocol, so
// that commands need nothing but an endpoint and a key: a Millrace node's gateway, or
// any other endpoint that speaks the protocol.
//
// It stands on the official Go SDK, azcosmos, which signs requests, waits where it is
// told to (429) and follows physical partitions that split. What the SDK does not say
// in the protocol's words is set by a policy of this package: a partition key of any
// value in its header. Answers become the types and errors of package store, so that
// commands are the same over either client:
//
//   - A refusal of an item or query is a *store.Error with the protocol's status.
//   - An endpoint that cannot be reached, or does not speak the protocol, is an
//     *UnreachableError; one whose certificate is not trusted a *TrustError.
//   - A key that is not in force, or may not do what is asked, is a *KeyError.
//   - A container that is not there is a *NoContainerError.
//
// Each request is tried again while the endpoint is unavailable, for Config.Timeout in
// all. A write that is tried again is an upsert, which done twice is done once.
//
// A Client and its Containers are safe for concurrent use.
package remote
