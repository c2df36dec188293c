package protocol

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/perigeedb/perigee/eventstore/catalog"
)

// Text formats a value for people; nil is "".
func Text(value any) string {
	switch value := value.(type) {
	case nil:
		return ""
	case string:
		return value
	case JSON:
		return string(value)
	case float32:
		return strconv.FormatFloat(float64(value), 'g', -1, 32)
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64)
	case time.Time:
		return value.Format("2006-01-02 15:04:05.999999999")
	case []byte:
		return base64.StdEncoding.EncodeToString(value)
	case []any, Struct:
		return string(AppendJSON(nil, value))
	}
	return fmt.Sprint(value)
}

// AppendObject appends a row as a JSON object.
func AppendObject(dst []byte, columns []catalog.Column, row []any) []byte {
	dst = append(dst, '{')
	for i, value := range row {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(AppendString(dst, columns[i].Name), ':')
		dst = AppendJSON(dst, value)
	}
	return append(dst, '}')
}

// AppendJSON appends a value as JSON. Numbers keep all digits. A number that JSON cannot
// represent, such as infinity, becomes null. Bytes are encoded as base64.
func AppendJSON(dst []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, value)
	case int64:
		return strconv.AppendInt(dst, value, 10)
	case uint64:
		return strconv.AppendUint(dst, value, 10)
	case float32:
		return appendFloat(dst, float64(value), 32)
	case float64:
		return appendFloat(dst, value, 64)
	case Number:
		return append(dst, value...)
	case JSON:
		return append(dst, value...)
	case time.Time:
		return AppendString(dst, value.Format(time.RFC3339Nano))
	case []any:
		dst = append(dst, '[')
		for i, item := range value {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = AppendJSON(dst, item)
		}
		return append(dst, ']')
	case Struct:
		dst = append(dst, '{')
		for i, field := range value {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(AppendString(dst, field.Name), ':')
			dst = AppendJSON(dst, field.Value)
		}
		return append(dst, '}')
	}
	return AppendString(dst, Text(value))
}

func appendFloat(dst []byte, f float64, bits int) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	return strconv.AppendFloat(dst, f, 'g', -1, bits)
}

// AppendString appends a string as JSON.
func AppendString(dst []byte, s string) []byte {
	var b strings.Builder
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(s) // a string always encodes
	return append(dst, strings.TrimSuffix(b.String(), "\n")...)
}
