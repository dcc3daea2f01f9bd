// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"context"
	"errors"
	"io/fs"
	"sync"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/kubelet"
	"github.com/nvtopo/nvtopo/pkg/node/nodeagent/steering/podfinder"
)

// recordsByResource holds kubelet's checkpoint by resource.
type recordsByResource struct {
	file *kubelet.RecordFile

	mu         sync.Mutex
	from       kubelet.Recorded           // source of byResource; guarded by mu
	byResource map[string]podfinder.ByPod // guarded by mu
	said       string                     // last logged reading error; guarded by mu
}

func newRecordsByResource(path string, clk clock.Clock) *recordsByResource {
	return &recordsByResource{file: kubelet.NewRecordFile(path, clk)}
}

// of returns the checkpoint's records of a resource, or nil if it cannot be read in time. The result must
// not be changed. It is complete: kubelet writes the file before it requests for the next container.
//
// A missing file is treated as unreadable: kubelet writes it as soon as a plugin has reported devices, so
// the path must be wrong.
func (r *recordsByResource) of(ctx context.Context, resource string) podfinder.ByPod {
	records, err := r.file.Read(ctx, recordWait)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		// Before the first list of devices the file may be missing.
		if text := err.Error(); text != r.said && (r.from != nil || !errors.Is(err, fs.ErrNotExist)) {
			r.said = text
			klog.FromContext(ctx).Error(err, "Cannot read kubelet's checkpoint")
		}
		return nil
	}
	r.said = ""
	if records != r.from {
		r.from, r.byResource = records, split(*records)
	}
	if pods, ok := r.byResource[resource]; ok {
		return pods
	}
	return podfinder.ByPod{}
}

// split groups records by resource and pod.
func split(records []kubelet.Record) map[string]podfinder.ByPod {
	out := map[string]podfinder.ByPod{}
	for i := range records {
		rec := &records[i]
		pods := out[rec.Resource]
		if pods == nil {
			pods = podfinder.ByPod{}
			out[rec.Resource] = pods
		}
		if pods[rec.PodUID] == nil {
			pods[rec.PodUID] = map[string][]string{}
		}
		pods[rec.PodUID][rec.Container] = rec.IDs
	}
	return out
}
