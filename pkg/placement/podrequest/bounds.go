// SPDX-License-Identifier: Apache-2.0

package podrequest

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bounds of a pod's request. Its author is not trusted: numbers of 19 digits must not wrap around in a
// sum, and reading a pod must cost little, since it happens in the scheduling cycle, where all others
// wait.
const (
	// maxInput is the longest value of an input annotation that is read, in bytes.
	// The API server allows 256 KiB, and a reason that quotes it would not fit into
	// the pod's status.
	maxInput = 1024
	// maxModels bounds the list of gpu-model: each is compared with every GPU's name.
	maxModels = 16
	// maxCount stands for any number of devices or CPUs beyond that of any node. Sums over all containers of
	// all pods of a node stay far inside an int.
	maxCount = 1 << 20
	// maxAmount, 256 TiB, stands for any amount of memory or thousandths of a CPU beyond that of any node:
	// sums stay inside an int64.
	maxAmount = 1 << 48
	// maxQuantity is the longest quantity that is read: "1e-100000000" takes minutes.
	maxQuantity = 24
)

// BoundedCount bounds a number of devices from 0 to maxCount.
func BoundedCount(n int64) int { return int(min(max(n, 0), maxCount)) }

// BoundedAmount bounds an amount of memory in bytes or of CPU in thousandths from 0 to maxAmount.
func BoundedAmount(n int64) int64 { return min(max(n, 0), maxAmount) }

// milliOf returns a quantity in thousandths. Quantity.MilliValue is 0 where these do not fit into an
// int64, and Quantity.Value where the number itself does not.
func milliOf(q *resource.Quantity) int64 {
	if q.CmpInt64(maxAmount/1000) > 0 {
		return maxAmount
	}
	return BoundedAmount(q.MilliValue())
}

func amountOf(q *resource.Quantity) int64 {
	if q.CmpInt64(maxAmount) > 0 {
		return maxAmount
	}
	return BoundedAmount(q.Value())
}

func countOf(q *resource.Quantity) int {
	if q.CmpInt64(maxCount) > 0 {
		return maxCount
	}
	return BoundedCount(q.Value())
}

func tooLong(value string) error {
	if len(value) > maxInput {
		return fmt.Errorf("%d bytes, at most %d are read", len(value), maxInput)
	}
	return nil
}

// parseQuantity reads a quantity with an exponent of at most two digits: computing greater ones takes time
// and memory in proportion to the number.
func parseQuantity(v string) (resource.Quantity, error) {
	if len(v) > maxQuantity {
		return resource.Quantity{}, fmt.Errorf("%q: %d bytes, at most %d are read", v, len(v), maxQuantity)
	}
	if i := strings.IndexAny(v, "eE"); i >= 0 && len(strings.TrimLeft(v[i+1:], "+-0")) > 2 {
		return resource.Quantity{}, fmt.Errorf("%q: the exponent is out of range", v)
	}
	q, err := resource.ParseQuantity(v)
	if err != nil {
		return resource.Quantity{}, fmt.Errorf("%q: %w", v, err)
	}
	return q, nil
}
