package testserver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// CreateTopic creates a topic with one partition, without a Kafka client: it requests the
// topic's metadata, which makes the broker create it, until the broker reports no error.
func (k *KafkaServer) CreateTopic(ctx context.Context, name string) error {
	for {
		code, err := k.requestMetadata(ctx, name)
		if err != nil {
			return fmt.Errorf("create topic %s: %w", name, err)
		}
		if code == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("create topic %s: %w; the broker's last answer was error %d", name, ctx.Err(), code)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// requestMetadata returns the error code of a topic's metadata.
func (k *KafkaServer) requestMetadata(ctx context.Context, topic string) (code int16, err error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", k.Address())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return 0, err
	}
	const metadata, version, correlation, topics = 3, 0, 1, 1
	order := binary.BigEndian
	request := order.AppendUint16(nil, metadata)
	request = order.AppendUint16(request, version)
	request = order.AppendUint32(request, correlation)
	request = order.AppendUint16(request, 0) // length of the client id
	request = order.AppendUint32(request, topics)
	request = append(order.AppendUint16(request, uint16(len(topic))), topic...)
	if _, err := conn.Write(append(order.AppendUint32(nil, uint32(len(request))), request...)); err != nil {
		return 0, err
	}
	var size uint32
	if err := binary.Read(conn, order, &size); err != nil {
		return 0, err
	}
	reply := make([]byte, min(size, 1<<20))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return 0, err
	}
	return parseTopicError(reply)
}

// parseTopicError returns the error code of the first topic, which follows the brokers.
func parseTopicError(reply []byte) (int16, error) {
	order := binary.BigEndian
	at := 4 // after the correlation id
	number := func(size int) int {
		from := at
		if at += size; at > len(reply) {
			return 0
		}
		if size == 2 {
			return int(int16(order.Uint16(reply[from:])))
		}
		return int(int32(order.Uint32(reply[from:])))
	}
	for range number(4) {
		number(4) // id
		at += number(2)
		number(4) // port
	}
	number(4) // count of topics
	code := number(2)
	if at > len(reply) || at < 0 {
		return 0, errors.New("the broker sent a truncated reply")
	}
	return int16(code), nil
}
