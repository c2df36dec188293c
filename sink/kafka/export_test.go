package kafka

import "time"

// SetDeliveryTimeout sets how long sinks that are made until restore is called retry.
func SetDeliveryTimeout(d time.Duration) (restore func()) {
	before := deliveryTimeout
	deliveryTimeout = d
	return func() { deliveryTimeout = before }
}
