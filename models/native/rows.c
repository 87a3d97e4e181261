// Sparse matrices as they come from files, and what is asked of all their rows.
#include <math.h>

#include "kernels.h"

// Return the first entry whose index is out of range or not above the one before it in its row; -1:
// there is none.
KERNEL rows_first_odd(const csr *matrix, int64_t num_columns) {
    for (int64_t row = 0; row < matrix->num_rows; row++) {
        int64_t last = -1;
        for (int64_t i = row_start(matrix, row); i < row_start(matrix, row + 1); i++) {
            const int64_t found = column(matrix, i);
            if (found <= last || found >= num_columns) return i;
            last = found;
        }
    }
    return -1;
}

// Write the largest value of each row of halves, 0 where it has none.
KERNEL rows_largest(const csr *matrix, float *largest) {
    for (int64_t row = 0; row < matrix->num_rows; row++) {
        uint16_t most = 0; // halves that are not negative are in the order of their bits
        for (int64_t i = row_start(matrix, row); i < row_start(matrix, row + 1); i++)
            most = matrix->halves[i] > most ? matrix->halves[i] : most;
        largest[row] = of_half(most);
    }
    return 0;
}

// Write the largest squared norm of the rows of halves.
KERNEL rows_longest(const csr *matrix, double *longest) {
    *longest = 0;
    for (int64_t row = 0; row < matrix->num_rows; row++) {
        double squares = 0;
        for (int64_t i = row_start(matrix, row); i < row_start(matrix, row + 1); i++) {
            const double value = of_half(matrix->halves[i]);
            squares += value * value;
        }
        if (squares > *longest) *longest = squares;
    }
    return 0;
}

// Add the squares of the values of each column.
KERNEL rows_add_squares(const csr *matrix, double *squares, int64_t num_columns) {
    const int64_t end = row_start(matrix, matrix->num_rows);
    for (int64_t i = 0; i < end; i++) {
        const uint64_t found = column(matrix, i);
        if (found < (uint64_t)num_columns)
            squares[found] += (double)matrix->data[i] * matrix->data[i];
    }
    return 0;
}

// List the entries of some columns in the order of the rows: place of the column, row and value.
//
// places: of each column, -1: it is not asked for. found: as many as `capacity` are written.
// Returns their number.
KERNEL rows_of_columns(const csr *matrix, const int32_t *places, int64_t num_columns,
                       int32_t *found_places, int32_t *found_rows, float *values,
                       int64_t capacity) {
    int64_t size = 0;
    for (int64_t row = 0; row < matrix->num_rows; row++)
        for (int64_t i = row_start(matrix, row); i < row_start(matrix, row + 1); i++) {
            const uint64_t found = column(matrix, i);
            if (found >= (uint64_t)num_columns || places[found] < 0) continue;
            if (size < capacity) {
                found_places[size] = places[found], found_rows[size] = (int32_t)row;
                values[size] = matrix->data[i];
            }
            size++;
        }
    return size;
}
