// SPDX-License-Identifier: Apache-2.0

package interposer

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
)

// check returns an error if ids do not satisfy the request. With too few ids or an invalid one, kubelet
// silently takes devices of its own choice instead.
func (q Question) check(ids []string) error {
	got := sets.New(ids...)
	must := sets.New(q.MustInclude...)
	switch {
	case len(ids) != q.Size:
		return fmt.Errorf("%d ids instead of %d", len(ids), q.Size)
	case got.Len() != len(ids):
		return fmt.Errorf("an id twice: %q", ids)
	case !got.IsSuperset(must):
		return fmt.Errorf("without %q, which must be included", sets.List(must.Difference(got)))
	}
	if unknown := got.Difference(must).Difference(sets.New(q.Available...)); unknown.Len() > 0 {
		return fmt.Errorf("%q, which are not available", sets.List(unknown))
	}
	return nil
}

// answerable returns an error if no set of ids can satisfy the request.
func (q Question) answerable() error {
	must := sets.New(q.MustInclude...)
	all := sets.New(q.Available...).Union(must)
	if q.Size < 0 || must.Len() > q.Size || all.Len() < q.Size {
		return fmt.Errorf("%d of %d available devices of %s with %d that must be included", q.Size, all.Len(), q.Resource, must.Len())
	}
	return nil
}
