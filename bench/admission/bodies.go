// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	kueue "github.com/nvtopo/nvtopo/pkg/apis/kueue/v1beta2"
	poolv1alpha1 "github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// pool is the name of the only pool.
const pool = "training"

// annotationBytes is the API server's limit on an object's annotations.
const annotationBytes = 256 << 10

// kind is a sort of request.
type kind struct {
	name string
	// path is the URL path, with the namespace to fill in.
	path string
	// grow makes the object long. keepsSize reports that it does not depend on n.
	grow      func(o object, n int)
	keepsSize bool
}

type object map[string]any

func (o object) child(path ...string) object {
	for _, field := range path {
		next, ok := o[field].(object)
		if !ok {
			next = object{}
			o[field] = next
		}
		o = next
	}
	return o
}

const pods = "/api/v1/namespaces/%s/pods"

var kinds = []kind{
	{"a pod like others", pods, func(object, int) {}, true},
	{"512 annotations, 250 KiB", pods, func(o object, _ int) {
		const n = 512
		for i := range n {
			o.child("metadata", "annotations")[fmt.Sprintf("nvtopo.dev/x%03d", i)] = strings.Repeat("v", annotationBytes*250/256/n-15)
		}
	}, true},
	{"64 misspelled keys, 250 KiB", pods, func(o object, _ int) {
		const n = 512
		for i := range n {
			key := fmt.Sprintf("example.com/x%03d", i)
			if i < 64 { // as many as the policies check
				key = fmt.Sprintf("nvtopo.dev/gang-sizes%03d", i)
			}
			o.child("metadata", "annotations")[key] = strings.Repeat("v", annotationBytes*250/256/n-24)
		}
	}, true},
	{"annotations", pods, func(o object, n int) { many(o.child("metadata", "annotations"), "x%d", n) }, false},
	{"annotations of ours", pods, func(o object, n int) { many(o.child("metadata", "annotations"), "nvtopo.dev/%d", min(n, 14000)) }, false},
	{"labels of Kueue", pods, func(o object, n int) { many(o.child("metadata", "labels"), "kueue.x-k8s.io/%d", n) }, false},
	{"gates in an annotation", pods, func(o object, n int) {
		o.child("metadata", "annotations")["kueue.x-k8s.io/admission-gated-by"] = strings.Repeat("x,", n)
	}, false},
	{"owners", pods, func(o object, n int) {
		o.child("metadata")["ownerReferences"] = list(n, func(i int) object {
			return object{"apiVersion": "v1", "kind": "A", "name": "a", "uid": strconv.Itoa(i)}
		})
	}, false},
	{"finalizers", pods, func(o object, n int) {
		o.child("metadata")["finalizers"] = list(n, func(i int) string { return fmt.Sprintf("kueue.x-k8s.io/%d", i) })
	}, false},
	{"scheduling gates", pods, func(o object, n int) {
		o.child("spec")["schedulingGates"] = list(n, func(i int) object { return object{"name": fmt.Sprintf("g%d", i)} })
	}, false},
	{"containers", pods, func(o object, n int) {
		o.child("spec")["containers"] = list(n/4+1, func(i int) object { return object{"name": fmt.Sprintf("c%d", i), "image": "i"} })
	}, false},
	{"annotations of a template", "/apis/apps/v1/namespaces/%s/deployments", func(o object, n int) {
		pod := object{"metadata": o["metadata"], "spec": o["spec"]}
		clear(o)
		o["apiVersion"], o["kind"], o["metadata"] = "apps/v1", "Deployment", object{"name": "x"}
		delete(pod.child("spec"), "restartPolicy")
		pod.child("metadata", "labels")["app"] = "x"
		o["spec"] = object{"selector": object{"matchLabels": object{"app": "x"}}, "template": pod}
		many(pod.child("metadata", "annotations"), "x%d", n)
	}, false},
}

func many(m object, format string, n int) {
	for i := range n {
		m[fmt.Sprintf(format, i)] = ""
	}
}

func list[T any](n int, entry func(int) T) []T {
	out := make([]T, n)
	for i := range n {
		out[i] = entry(i)
	}
	return out
}

// body returns a request that creates an object; a tenant's has the fields that Kueue's
// webhook would set.
func (k *kind) body(n int, tenant bool) ([]byte, error) {
	o := object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "x"},
		"spec": object{"restartPolicy": "Never", "containers": []object{{"name": "c", "image": "i"}}, "nodeSelector": object{poolv1alpha1.LabelPool: pool}},
	}
	if tenant {
		o.child("metadata", "labels")[kueue.LabelQueue] = pool
		o.child("spec")["schedulingGates"] = []object{{"name": "kueue.x-k8s.io/admission"}}
	}
	k.grow(o, n)
	body, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", k.name, err)
	}
	return body, nil
}
