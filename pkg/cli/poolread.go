// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"

	"github.com/nvtopo/nvtopo/pkg/pools/ledger"
)

// poolError is an error of reading pools, with its exit code.
func poolError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ledger.ErrNotFound):
		return noAnswerf("%w", err)
	}
	return inputf("%w", err)
}
