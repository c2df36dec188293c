package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/bytedance/sonic"
)

// trimKeys are the keys that the trim job removes from each event, as in the write-up that
// replaced Lua by Go plugins.
var trimKeys = []string{"key1", "key2", "key3", "key4", "key5", "key6", "key7", "key8", "key9", "key10"}

// trimEvent returns an event of the trim job: 191 bytes, strings only.
func trimEvent(i int) string {
	return fmt.Sprintf(`{"key1":"val1","key2":"val2","key3":"val3","key4":"val4","key5":"val5","key6":"val6",`+
		`"key7":"val7","key8":"val8","key9":"val9","key10":"val10","city":"Jakarta","id":"%07d","kind":"ok"}`, i)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// nativeTrim is the write-up's native code: encoding/json and a map.
func nativeTrim(doc []byte) []byte {
	var event map[string]string
	must(json.Unmarshal(doc, &event))
	for _, key := range trimKeys {
		delete(event, key)
	}
	out, err := json.Marshal(event)
	must(err)
	return out
}

// sonicTrim is nativeTrim with sonic, the fastest drop-in JSON library for Go.
func sonicTrim(doc []byte) []byte {
	var event map[string]string
	must(sonic.Unmarshal(doc, &event))
	for _, key := range trimKeys {
		delete(event, key)
	}
	out, err := sonic.Marshal(event)
	must(err)
	return out
}

// rowEvent returns a row of 17 fields such as TalariaDB ingests.
func rowEvent(i int) string {
	return fmt.Sprintf(`{"event":"booking.created","time":1684202583,"city":"Singapore","amount":%d.25,"qty":%d,`+
		`"currency":"SGD","country":"SG","driver":"d-%05d","passenger":"p-%05d","vehicle":"car","state":"open","paid":false,`+
		`"lat":1.3521,"lon":103.8198,"app":"5.201.0","os":"android","note":"none"}`, i%90, i%7, i%9999, i%7777)
}

// nativeRow decodes the row into a map, as TalariaDB does for a Go function, and computes
// the column.
func nativeRow(doc []byte) string {
	var row map[string]any
	must(json.Unmarshal(doc, &row))
	return row["city"].(string) + ":" + strconv.FormatFloat(row["amount"].(float64)*1.07, 'g', 14, 64)
}
