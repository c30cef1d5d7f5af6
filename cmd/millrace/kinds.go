package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/pipelines/registry"
	"github.com/millrace/millrace/store"
)

// kind is a kind of resource as it is named on the command line.
type kind string

const (
	kindContainer kind = "container"
	kindPipeline  kind = "pipeline"
)

// parseKind reads container, containers, Pipeline and the like.
func parseKind(s string) (kind, error) {
	switch k := kind(strings.TrimSuffix(strings.ToLower(s), "s")); k {
	case kindContainer, kindPipeline:
		return k, nil
	}
	return "", &usageError{fmt.Errorf("there is no kind %s: container or pipeline is expected", s)}
}

// splitName divides database/name; without a database it is that of --database.
func (a *app) splitName(name string) (database, rest string) {
	if database, rest, ok := strings.Cut(name, "/"); ok {
		return database, rest
	}
	return a.database, name
}

// containers returns one container, or all of the database if name is "".
func (s *session) containers(ctx context.Context, database, name string) ([]store.ContainerInfo, error) {
	if name != "" {
		info, err := s.client.Catalog().Get(ctx, database, name)
		return []store.ContainerInfo{info}, err
	}
	all, err := s.client.Catalog().List(ctx)
	return slices.DeleteFunc(all, func(info store.ContainerInfo) bool { return info.Database != database }), err
}

// users returns the names of the pipelines that use a container.
func (s *session) users(ctx context.Context, database, name string) ([]string, error) {
	records, err := s.registry.Users(ctx, database, name)
	names := []string{}
	for i := range records {
		names = append(names, records[i].Name)
	}
	return names, err
}

// pipelines returns one pipeline, or all of the database if name is "".
func (s *session) pipelines(ctx context.Context, database, name string) ([]registry.Record, error) {
	if name != "" {
		rec, err := s.registry.Get(ctx, database, name)
		return []registry.Record{rec}, err
	}
	all, err := s.registry.List(ctx)
	return slices.DeleteFunc(all, func(rec registry.Record) bool { return rec.Database != database }), err
}
