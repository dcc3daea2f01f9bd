// SPDX-License-Identifier: Apache-2.0

package invoicing

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/pools/accounting"
	"github.com/nvtopo/nvtopo/pkg/pools/names"
)

const (
	// manyRecords is the number of ready records of a tenant that go into batches at once. A batch has
	// more sessions than that.
	manyRecords = 1000
	// fewWait is how long fewer records wait for others.
	fewWait = 7 * 24 * time.Hour
)

// batching is the work on batches that the cache shows to be due.
type batching struct {
	fill  bool               // enough records are ready for batches, or one has waited for long
	there map[types.UID]bool // the batches that the cache showed
}

// batching decides from the cache whether records are to go into batches, or records that batches
// replace are to be deleted; nil if neither. Records of existing pods are left out: they stay.
func (r *reconciler) batching(ctx context.Context, books *accounting.Books, tally *accounting.Tally) (*batching, error) {
	if r.batchAfter <= 0 {
		return nil, nil
	}
	ready, replaced := tally.Ready(books.Prices, r.batchAfter, books.Now), tally.Replaced()
	if len(replaced) == 0 && !r.fills(ready, books.Now) {
		return nil, nil
	}
	alive, err := alivePods(ctx, r.client, &v1.PodList{}, ready, replaced)
	if err != nil {
		return nil, err
	}
	shown := &batching{fill: r.fills(withoutPods(ready, alive), books.Now), there: tally.BatchUIDs()}
	if !shown.fill && len(withoutPods(replaced, alive)) == 0 {
		return nil, nil
	}
	return shown, nil
}

// fills reports whether enough records are ready, or one for long enough, to go into batches now.
func (r *reconciler) fills(ready []*v1alpha1.UsageRecord, now time.Time) bool {
	return len(ready) >= manyRecords || slices.ContainsFunc(ready, func(u *v1alpha1.UsageRecord) bool {
		return !u.Status.End.Add(r.batchAfter + fewWait).After(now)
	})
}

// readyAfter returns the time after their end at which records are ready in this pass; 0: no batch is
// filled.
func (b *batching) readyAfter(after time.Duration) time.Duration {
	if b.fill {
		return after
	}
	return 0
}

// batch makes batches of the ready records, and deletes records that batches replace. The books are read
// from the API server. A record is deleted only once the cache has shown its batch, too, so that no bill
// of this process is made without both.
func (r *reconciler) batch(ctx context.Context, books *accounting.Books, shown *batching) error {
	all, _ := books.Ready(shown.readyAfter(r.batchAfter))
	seen := slices.DeleteFunc(slices.Clone(books.AllBatches()), func(b v1alpha1.UsageBatch) bool { return !shown.there[b.UID] })
	ready, old := pointers(all), pointers(accounting.Replaced(books.Records, seen))
	if len(ready)+len(old) == 0 {
		return nil
	}
	alive, err := alivePods(ctx, r.reader, podMetadata(), ready, old)
	if err != nil {
		return err
	}
	var gone []v1alpha1.UsageRecord
	for _, u := range withoutPods(ready, alive) {
		gone = append(gone, *u)
	}
	made, err := accounting.Batches(gone, books.AllBatches())
	if err != nil {
		return err
	}
	for i := range made {
		if err := r.client.Create(ctx, &made[i], client.FieldOwner(names.FieldOwner)); err != nil {
			return fmt.Errorf("make UsageBatch %s: %w", made[i].Name, err)
		}
	}
	old = withoutPods(old, alive)
	return inParallel(ctx, len(old), func(ctx context.Context, i int) error { return r.letGo(ctx, old[i]) })
}

func pointers(records []v1alpha1.UsageRecord) []*v1alpha1.UsageRecord {
	out := make([]*v1alpha1.UsageRecord, len(records))
	for i := range records {
		out[i] = &records[i]
	}
	return out
}

// podMetadata returns a list for the metadata of pods alone.
func podMetadata() *metav1.PartialObjectMetadataList {
	return metadata(v1.SchemeGroupVersion.WithKind("PodList"))
}

func metadata(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}

// alivePods returns the UIDs of all pods in the namespaces of the records' pods.
func alivePods(ctx context.Context, from client.Reader, into client.ObjectList, records ...[]*v1alpha1.UsageRecord) (map[types.UID]bool, error) {
	namespaces := map[string]bool{}
	for _, list := range records {
		for _, u := range list {
			namespaces[accounting.NamespaceOf(u)] = true
		}
	}
	alive := map[types.UID]bool{}
	for _, namespace := range slices.Sorted(maps.Keys(namespaces)) {
		// The cache has whole pods, and only their UIDs are read.
		if err := from.List(ctx, into, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list the pods of namespace %s: %w", namespace, err)
		}
		err := meta.EachListItem(into, func(o runtime.Object) error {
			pod, err := meta.Accessor(o)
			if err == nil {
				alive[pod.GetUID()] = true
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the pods of namespace %s: %w", namespace, err)
		}
	}
	return alive, nil
}

// withoutPods returns the records whose pod is gone.
func withoutPods(records []*v1alpha1.UsageRecord, alive map[types.UID]bool) []*v1alpha1.UsageRecord {
	return slices.DeleteFunc(records, func(u *v1alpha1.UsageRecord) bool { return alive[u.Spec.PodUID] })
}
