package store

import (
	"context"
	"slices"
)

// WantIndex records an index that a pipeline needs. It stays when the container's
// declaration drops it.
func (c *Catalog) WantIndex(ctx context.Context, database, name, path string) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		if !slices.Contains(i.IndexesWanted, path) {
			i.IndexesWanted = append(i.IndexesWanted, path)
		}
		return nil
	})
	return err
}

// DropIndex takes back what WantIndex recorded, when no pipeline needs the index
// any more. One that the container's declaration names stays.
func (c *Catalog) DropIndex(ctx context.Context, database, name, path string) error {
	_, err := c.modify(ctx, database, name, func(i *ContainerInfo) error {
		i.IndexesWanted = slices.DeleteFunc(i.IndexesWanted, func(p string) bool { return p == path })
		return nil
	})
	return err
}
