// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

// poolError is an error of reading pools, with its exit code.
func poolError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrNotFound):
		return noAnswerf("%w", err)
	case apierrors.IsNotFound(err):
		return inputf("pools are not installed in this cluster, so nobody records GPU hours, bills or quotas: see docs/pools.md (%w)", err)
	}
	return inputf("%w", err)
}
