// SPDX-License-Identifier: Apache-2.0

package steering

import (
	"k8s.io/klog/v2"
)

var testLogger = klog.Background()
