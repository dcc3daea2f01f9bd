// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"math/big"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/nvtopo/nvtopo/internal/testobj"
)

// FuzzParse reads pods with arbitrary annotations and quantities: counts are those of arithmetic without
// limits.
func FuzzParse(f *testing.F) {
	for i, value := range []string{
		"best-effort", "required", "NV4", "1e309", "true", "H100,A100", "80Gi", "NaN", "Inf", "-1", "0x1p-1074", "\u202eNV4", "１", "(a+)+$",
	} {
		f.Add(uint8(i), value, "2", "1", "4", uint8(i))
	}
	f.Add(uint8(0), "none", "9223372036854775807", "9223372036854775807", "9223372036854775807", uint8(1))
	f.Add(uint8(0), "none", "9223372036854775807", "9223372036854775807", "9223372036854775807", uint8(0))
	f.Add(uint8(6), "1e-100000000", "1", "1", "1", uint8(0))
	f.Add(uint8(1), "none", "1e30", "2147483648", "9223372036854775807", uint8(2))
	f.Add(uint8(2), "SYS", "0.5", "-1", "1n", uint8(3))
	f.Fuzz(func(t *testing.T, key uint8, value, first, second, cpu string, kinds uint8) {
		pod := testobj.Pod("p").Containers().Obj()
		want := new(big.Int)
		for i, text := range []string{first, second, first} {
			q, err := parseQuantity(text) // the API server reads pods' quantities first
			if err != nil {
				return
			}
			c := testobj.Container(string(rune('a'+i)), 0)
			c.Resources.Requests = v1.ResourceList{testResource: q}
			if q, err := parseQuantity(cpu); err == nil {
				c.Resources.Requests["cpu"] = q
			}
			if kinds>>i&1 == 0 {
				pod.Spec.Containers = append(pod.Spec.Containers, c)
				want.Add(want, wholeOf(&q))
			} else {
				pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
			}
		}
		for i := range pod.Spec.InitContainers {
			q := pod.Spec.InitContainers[i].Resources.Requests[testResource]
			if one := wholeOf(&q); want.Cmp(one) < 0 {
				want = one
			}
		}
		all := inputs()
		pod.Annotations[all[int(key)%len(all)].key] = value
		r, err := Parse(pod, testOptions())
		if err != nil {
			return
		}
		count := 0
		if len(r.Resources) > 0 {
			count = r.Resources[0].Count
		}
		if exact := want.IsInt64() && want.Int64() == int64(count); !exact && count < maxCount {
			t.Fatalf("%s GPUs are read as %d", want, count)
		}
		again, err := Parse(pod, testOptions())
		if err != nil || r.Signature() != again.Signature() || r.Constraint.MinBandwidth < 0 || r.minGPUMemory < 0 {
			t.Fatalf("%+v, and read again %+v, %v", r, again, err)
		}
	})
}

// wholeOf is a quantity rounded up, but at most 2^40; 0 if it is negative.
func wholeOf(q *resource.Quantity) *big.Int {
	if q.CmpInt64(1<<40) > 0 {
		return big.NewInt(1 << 40)
	}
	return big.NewInt(max(0, q.Value()))
}
